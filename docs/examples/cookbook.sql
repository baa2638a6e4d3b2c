-- Which actors are there, and what do they do now?
SELECT name, rank, status, endpoint, queue_depth, handled, pid FROM actors ORDER BY name, rank;

-- Which ranks have the longest queues?
SELECT name, rank, queue_depth, status, endpoint FROM actors ORDER BY queue_depth DESC LIMIT 10;

-- Which ranks have handled the least of their mesh: the stragglers?
SELECT name, rank, handled, max(handled) OVER (PARTITION BY mesh_id) - handled AS behind
FROM actors WHERE status <> 'Client' ORDER BY behind DESC, name, rank LIMIT 10;

-- Who waits for whom, and since when?
SELECT a.name, a.rank, w.endpoint, w.waits_for, (epoch_us(now()) - w.since_us) // 1_000_000 AS seconds
FROM waits w LEFT JOIN actors a ON a.id = w.actor_id ORDER BY seconds DESC;

-- For whom do most wait: the root of a jam?
SELECT t.name, t.rank, t.status, t.endpoint, count(*) AS waiting
FROM waits w JOIN actors t ON t.id = w.for_actor_id GROUP BY ALL ORDER BY waiting DESC;

-- How often was each endpoint called? (exact)
SELECT actor, endpoint, sum(count) AS calls FROM handled GROUP BY ALL ORDER BY calls DESC;

-- Do the ranks of a mesh share the work evenly? (exact)
SELECT actor, endpoint, min(count) AS least, max(count) AS most, arg_min(rank, count) AS laziest
FROM handled GROUP BY ALL ORDER BY most - least DESC;

-- How long do endpoints take?
SELECT a.name, m.endpoint, sum(sample_weight) AS calls, quantile_cont(duration_us, 0.5) AS p50, quantile_cont(duration_us, 0.99) AS p99
FROM messages m JOIN actors a ON a.id = m.to_actor_id GROUP BY ALL ORDER BY p99 DESC NULLS LAST;

-- Which endpoint got slower in the last minute?
SELECT endpoint,
       avg(duration_us) FILTER (timestamp_us <= epoch_us(now()) - 60_000_000) AS before,
       avg(duration_us) FILTER (timestamp_us > epoch_us(now()) - 60_000_000) AS lately,
       lately / before AS times
FROM messages WHERE timestamp_us > epoch_us(now()) - 600_000_000 GROUP BY endpoint ORDER BY times DESC NULLS LAST;

-- Which rank is slower than the others at the same endpoint?
WITH ranks AS (
    SELECT a.name, a.rank, m.endpoint, avg(m.duration_us) AS own
    FROM messages m JOIN actors a ON a.id = m.to_actor_id GROUP BY ALL)
SELECT *, own / median(own) OVER (PARTITION BY name, endpoint) AS times FROM ranks ORDER BY times DESC NULLS LAST LIMIT 10;

-- Whose steps take longer than those of the others, and by how much, in the last 10 minutes?
WITH ranks AS (
    SELECT a.name, s.rank, count(*) AS steps, median(s.duration_us) / 1e6 AS seconds
    FROM steps s JOIN actors a ON a.id = s.actor_id WHERE s.timestamp_us > epoch_us(now()) - 600_000_000 GROUP BY ALL)
SELECT *, seconds / median(seconds) OVER (PARTITION BY name) AS times FROM ranks ORDER BY times DESC NULLS LAST, rank;

-- Who sent the biggest messages?
SELECT a.name, a.rank, s.endpoint, max(s.bytes) AS largest, sum(s.bytes * s.sample_weight) AS total
FROM sent_messages s JOIN actors a ON a.id = s.sender_actor_id GROUP BY ALL ORDER BY largest DESC NULLS LAST LIMIT 10;

-- Who talks to whom, and how much?
SELECT f.name AS sender, t.name AS receiver, m.endpoint, sum(m.sample_weight) AS messages, sum(m.bytes * m.sample_weight) AS bytes
FROM messages m JOIN actors f ON f.id = m.from_actor_id JOIN actors t ON t.id = m.to_actor_id GROUP BY ALL ORDER BY bytes DESC;

-- What is being handled right now, the longest first?
SELECT a.name, a.rank, m.endpoint, (epoch_us(now()) - m.timestamp_us) / 1e6 AS seconds
FROM messages m JOIN actors a ON a.id = m.to_actor_id WHERE m.duration_us IS NULL ORDER BY seconds DESC;

-- Which messages failed?
SELECT a.name, a.rank, m.endpoint, make_timestamp(e.timestamp_us) AS time
FROM message_status_events e JOIN messages m ON m.id = e.message_id JOIN actors a ON a.id = m.to_actor_id
WHERE e.status = 'failed' ORDER BY time;

-- Which processes have ended, and how?
SELECT mesh, rank, pid, state, exit_code, signal, reason FROM procs WHERE state = 'ended';

-- What happened to actors, the latest first?
SELECT make_timestamp(e.timestamp_us) AS time, a.name, a.rank, e.new_status, e.reason
FROM actor_status_events e LEFT JOIN actors a ON a.id = e.actor_id ORDER BY time DESC LIMIT 20;

-- Which processes use the most memory, and which the processor?
SELECT mesh, rank, pid, rss_bytes // 1048576 AS mib, cpu_seconds, threads FROM procs ORDER BY mib DESC NULLS LAST LIMIT 10;

-- Is a process stopped, or stuck in the kernel?
SELECT mesh, rank, pid, os_state FROM procs WHERE os_state IN ('stopped', 'traced', 'disk') ORDER BY mesh, rank;

-- Which hosts have a disk that is nearly full?
SELECT machine, disk, disk_available_bytes // 1048576 AS free_mib FROM hosts WHERE disk_available_bytes < disk_bytes / 10 ORDER BY free_mib;

-- What has raised, and when last?
SELECT actor, rank, endpoint, failed, make_timestamp(failed_us) AS last FROM handled WHERE failed > 0 ORDER BY last DESC;

-- Which hosts are short of memory, or busy?
SELECT machine, cpus, load_1m, memory_available_bytes * 100 // memory_bytes AS free_percent, swap_used_bytes FROM hosts ORDER BY free_percent;

-- How many actors does each mesh have, on how many hosts?
SELECT m.given_name, m.class, count(*) AS ranks, count(DISTINCT p.host_id) AS hosts, sum(a.handled) AS handled
FROM actors a JOIN meshes m ON m.id = a.mesh_id LEFT JOIN procs p ON p.id = a.proc_id GROUP BY ALL ORDER BY ranks DESC;

-- Which ranks said something like an error in the last five minutes?
SELECT mesh, rank, count(*) AS lines, max_by(text, timestamp_us) AS latest
FROM logs WHERE timestamp_us > epoch_us(now()) - 300_000_000 AND (level IN ('WARNING', 'ERROR', 'CRITICAL') OR text ILIKE '%error%')
GROUP BY ALL ORDER BY lines DESC;

-- Which loggers say the most, and from where?
SELECT target, level, file, line, count(*) AS records FROM events GROUP BY ALL ORDER BY records DESC LIMIT 20;

-- Where are the ranks: which functions of the program are entered, by how many?
SELECT mesh, endpoint, function, file, line, count(DISTINCT rank) AS ranks
FROM stacks WHERE endpoint IS NOT NULL AND depth < 5 GROUP BY ALL ORDER BY ranks, mesh;

-- Which actors have failed, and what has ended them?
SELECT make_timestamp(failure_occurred_at) AS time, node_id, failure_root_cause_actor, failure_error_message FROM actor_failures ORDER BY time;
