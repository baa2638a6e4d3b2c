"""The only threads and processes.

Read in this order: `future` (how an answer is awaited), `node` (the message hub of one process), `endpoint` and `cell`
(an actor and its thread), `ports`, `context`; then the processes: `client`, `agent_main`, `agent`, `spawner`, `proc`.
"""
