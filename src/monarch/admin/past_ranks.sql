WITH calls AS (
    SELECT actor_id, min(timestamp_us) FILTER (open) AS begin, arg_min(endpoint, timestamp_us) FILTER (open) AS endpoint
    FROM (SELECT to_actor_id AS actor_id, timestamp_us, endpoint, coalesce(timestamp_us + duration_us > {at}, true) AS open
        FROM messages WHERE timestamp_us <= {at}) GROUP BY ALL),
lives AS (
    SELECT actor_id, arg_max(new_status, timestamp_us) AS status FROM actor_status_events WHERE timestamp_us <= {at} GROUP BY ALL),
counts AS (
    SELECT DISTINCT ON (actor_id) actor_id, queue_depth, handled / seconds AS rate FROM history
    WHERE timestamp_us <= {at} AND timestamp_us >= {recently} AND timestamp_us > {at} - (seconds + 1) * 1000000
    ORDER BY actor_id, seconds, timestamp_us DESC)
SELECT p.mesh_id::VARCHAR AS uid, p.mesh, p.rank, p.size, p.pid, h.machine AS host, any_value(s.shape_json) AS shape,
    bool_or(l.status = 'Failed') AS failed, bool_and(l.status IN ('Stopped', 'Failed')) AS ended,
    bool_and(l.status IN ('Created', 'Initializing')) AS starts, count(c.begin) > 0 AS runs,
    bool_or(coalesce(c.actor_id, n.actor_id) IS NOT NULL OR (a.handled = 0 AND l.actor_id IS NOT NULL)) AS known,
    min(c.begin) AS begin, arg_min(c.endpoint, c.begin) AS endpoint,
    sum(n.queue_depth)::BIGINT AS queue, sum(n.rate)::DOUBLE AS rate
FROM procs p LEFT JOIN hosts h ON h.id = p.host_id LEFT JOIN actors a ON a.proc_id = p.id LEFT JOIN calls c ON c.actor_id = a.id
    LEFT JOIN lives l ON l.actor_id = a.id LEFT JOIN counts n ON n.actor_id = a.id
    LEFT JOIN meshes s ON s.id = p.mesh_id AND s.class = 'Proc'
GROUP BY p.mesh_id, p.mesh, p.rank, p.size, p.pid, h.machine, p.state ORDER BY p.mesh_id, p.rank, p.state <> 'ended'
