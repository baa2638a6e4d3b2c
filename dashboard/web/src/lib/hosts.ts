/** What hosts do right now, for the strip of the page Now: a row for each, and of more than eight the highest, the median and the lowest. */
import { sql, type Row } from "./api";

export interface HostRow extends Row {
  host: string;
  load: number | null;
  memory: number | null;
  network: number | null;
  gpu: number | null;
  disk: number | null;
}

const MOST = 8;
const FIGURES = ["load", "memory", "network", "gpu", "disk"] as const;

/** The network is what went in and out over the last half minute. */
const HOSTS = (now: number) => `
  WITH rates AS (
    SELECT host_id, (max(timestamp_us) - min(timestamp_us)) / 1e6 AS took, (max(rx_bytes) - min(rx_bytes) + max(tx_bytes) - min(tx_bytes)) / took AS network
    FROM host_history WHERE timestamp_us > ${Math.round((now - 35) * 1e6)} GROUP BY host_id HAVING took > 1),
  busy AS (SELECT host_id, avg(busy_percent) AS gpu FROM gpus GROUP BY host_id),
  rows AS (
    SELECT h.machine AS host, 100 * h.load_1m / h.cpus AS load, 100 * (h.memory_bytes - h.memory_available_bytes) / h.memory_bytes AS memory, r.network, b.gpu,
      100 * (1 - h.disk_available_bytes / h.disk_bytes) AS disk
    FROM hosts h LEFT JOIN rates r ON r.host_id = h.id LEFT JOIN busy b ON b.host_id = h.id),
  many AS (SELECT count(*) > ${MOST} AS are FROM rows)
  SELECT host, ${FIGURES.join(", ")} FROM (
    SELECT 0 AS place, rows.* FROM rows, many WHERE NOT are
    ${["max", "median", "min"].map((how, place) => `UNION ALL SELECT ${place}, '${["highest", "median", "lowest"][place]}', ${FIGURES.map((name) => `${how}(${name})`).join(", ")} FROM rows, many WHERE are HAVING count(*) > 0`).join("\n    ")})
  ORDER BY place, host`;

export const hostsOf = async (now: number, signal: AbortSignal) => (await sql<HostRow>(HOSTS(now), signal)).rows;
