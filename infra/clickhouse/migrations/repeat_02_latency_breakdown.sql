-- Where the time goes: percentiles of each stage, over the requests that got an answer. `total` is the whole, `ttft`
-- the time to the first token. The stages of one request add up to its total; percentiles do not add up.

CREATE OR REPLACE VIEW headrace.latency_breakdown AS
SELECT
    tenant,
    model,
    model_version,
    toStartOfHour(received_at) AS hour,
    measured.1 AS stage,
    count(measured.2) AS requests,
    quantileTDigest(0.5)(measured.2) AS p50_ms,
    quantileTDigest(0.95)(measured.2) AS p95_ms,
    quantileTDigest(0.99)(measured.2) AS p99_ms
FROM headrace.requests
ARRAY JOIN [
    ('ingress', ingress_ms),
    ('validate', validate_ms),
    ('quota', quota_ms),
    ('route', route_ms),
    ('queue', queue_ms),
    ('schedule', schedule_ms),
    ('prefill', prefill_ms),
    ('decode', decode_ms),
    ('deliver', deliver_ms),
    ('ttft', ttft_ms),
    ('total', total_ms)
] AS measured
WHERE status IN ('completed', 'incomplete') AND received_at IS NOT NULL
GROUP BY tenant, model, model_version, hour, stage
HAVING requests > 0;
