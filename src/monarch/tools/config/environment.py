"""Python environments of hosts, by the name that Monarch 0.7 has for them.

`monarch.environments.in_environment` takes one.
"""

from ...environments.conda import CondaEnvironment

__all__ = ["CondaEnvironment"]
