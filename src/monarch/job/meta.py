"""Jobs on Meta's own scheduler: as in Monarch 0.7, importing this fails outside of Meta."""

raise ImportError(
    "monarch.job.meta is for Meta's own scheduler; elsewhere use another job of monarch.job, such as ProcessJob or hosts_from_config"
)
