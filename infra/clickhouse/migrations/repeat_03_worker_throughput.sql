-- What each worker did, minute by minute, and what it could do: from its reports on the telemetry topic and the curve
-- that it measured before it took its first request.
--
-- A report counts for the minute in which it was made, with the time that it covers; one of a worker that warms up is
-- counted and nothing else, since no work is taken yet. Telemetry has neither tenant nor request, so its rows lie
-- together in the order of time, and a question about an hour reads little more than that.
-- state: what the minute's last report says: warming_up, running, draining or stopping.
-- measured_tokens_per_second: output tokens a second that the curve promises for as many requests as were in the batch
-- on average, at its shortest context: of the smallest batch that is no smaller, else of the largest. NULL without a
-- curve.

CREATE OR REPLACE VIEW headrace.worker_throughput AS
WITH
    arrayFilter(p -> p.2 = arrayMin(arrayMap(q -> q.2, points)), points) AS shortest,
    arrayFirst(p -> p.1 >= running_mean, shortest) AS enough,
    if(enough.1 > 0, enough, arrayElement(shortest, -1)) AS nearest
SELECT
    worker,
    minute,
    deployment,
    model_version,
    state,
    reports,
    steps,
    if(steps = 0, NULL, step_us / steps / 1000) AS step_mean_ms,
    if(steps = 0, NULL, step_max_us / 1000) AS step_max_ms,
    if(interval_ms = 0, NULL, prompt_tokens * 1000 / interval_ms) AS prompt_tokens_per_second,
    if(interval_ms = 0, NULL, output_tokens * 1000 / interval_ms) AS output_tokens_per_second,
    nullIf(nearest.3, 0) AS measured_tokens_per_second,
    finished_requests,
    running_mean AS running_requests,
    waiting_mean AS waiting_requests,
    if(kv_capacity = 0, NULL, kv_used / kv_capacity) AS kv_share
FROM
(
    WITH JSONExtract(payload, 'Tuple(worker String, deployment String, model_version String, interval_ms Int64, steps Int64, step_mean_us Int64, step_max_us Int64, prompt_tokens Int64, output_tokens Int64, finished_requests Int64, running_requests Int64, waiting_requests Int64, kv_used_tokens Int64, kv_capacity_tokens Int64, state String)') AS r,
        r.15 != 'warming_up' AS takes_work
    SELECT
        r.1 AS worker,
        toStartOfMinute(at) AS minute,
        argMax(r.2, at) AS deployment,
        argMax(r.3, at) AS model_version,
        argMax(r.15, at) AS state,
        count() AS reports,
        sumIf(r.4, takes_work) AS interval_ms,
        sum(r.5) AS steps,
        sum(r.5 * r.6) AS step_us,
        max(r.7) AS step_max_us,
        sum(r.8) AS prompt_tokens,
        sum(r.9) AS output_tokens,
        sum(r.10) AS finished_requests,
        ifNull(avgOrNullIf(r.11, takes_work), 0) AS running_mean,
        ifNull(avgOrNullIf(r.12, takes_work), 0) AS waiting_mean,
        sum(r.13) AS kv_used,
        sum(r.14) AS kv_capacity
    FROM headrace.events
    WHERE tenant = '' AND request_id = '' AND event_type = 'WorkerReported'
    GROUP BY worker, minute
) AS done
LEFT JOIN
(
    SELECT
        JSONExtractString(payload, 'worker') AS worker,
        arraySort(argMax(JSONExtract(payload, 'points', 'Array(Tuple(batch_size Int64, context_tokens Int64, output_tokens_per_second Float64))'), at)) AS points
    FROM headrace.events
    WHERE tenant = '' AND request_id = '' AND event_type = 'ThroughputMeasured'
    GROUP BY worker
) AS curves USING (worker);
