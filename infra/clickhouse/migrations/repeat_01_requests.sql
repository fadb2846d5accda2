-- One row a request, folded from its events. It counts what schemas/token_log.py counts, and each decision once, the
-- first time, however often a processor repeated it.
--
-- The stages are differences of neighbouring boundaries
--   received > started > validated > admitted > routed > pulled > generating > first token > ended > delivered
-- and add up to total_ms exactly: a boundary that is missing takes the next one that is known, and what ended the
-- request closes the stage that it was in. A stage that was never reached is NULL.

CREATE OR REPLACE VIEW headrace.requests AS
WITH
    -- A rejection counts only before an admission, a terminal event only if no higher attempt had begun before it;
    -- of those that count, the first.
    arrayFirst(
        t -> NOT arrayExists(s -> s.1 < t.1 AND s.2 > t.2, beginnings),
        arraySort(t -> t.1, terminals)
    ) AS terminal,
    terminal.2 AS end_attempt,
    terminal.3 AS ended_us,
    terminal.4 AS ended_by,
    terminal.5 AS end_reason,
    terminal.6 AS end_code,
    terminal.7 AS end_model_version,
    terminal.8 AS end_deployment,
    terminal.9 AS end_worker,
    terminal.10 AS first_token_us,
    terminal.11 AS end_prompt_tokens,
    terminal.12 AS end_output_tokens,
    submitted.1 AS submitted_us,
    validated.1 AS validated_us,
    routed.1 AS routed_us,
    generation.1 AS generating_us,
    delivered.1 AS delivered_us,
    ended_us != 0 AS has_ended,
    validated_us != 0 AS is_valid,
    [
        nullIf(if(is_valid, validated.2, submitted.2), 0),
        multiIf(is_valid, validated.3, has_ended, nullIf(submitted_us, 0), NULL),
        nullIf(validated_us, 0),
        nullIf(admitted_us, 0),
        nullIf(routed_us, 0),
        nullIf(generation.2, 0),
        nullIf(generating_us, 0),
        nullIf(first_token_us, 0),
        nullIf(ended_us, 0)
    ] AS boundaries,
    arrayMap(i -> arrayFirstOrNull(b -> b IS NOT NULL, arraySlice(boundaries, i)), range(1, 10)) AS filled,
    arrayLastIndex(b -> b IS NOT NULL, arraySlice(boundaries, 1, 8)) AS reached,
    arrayMap(i -> if(i > reached, NULL, (filled[i + 1] - filled[i]) / 1000), range(1, 9)) AS stages_ms
SELECT
    tenant,
    request_id,
    multiIf(is_valid, validated.4, routed_us != 0, routed.2, submitted.3) AS model,
    multiIf(end_model_version != '', end_model_version, generation_last.2 != '', generation_last.2, routed.3) AS model_version,
    routed.5 AS adapter,
    multiIf(end_deployment != '', end_deployment, generation_last.3 != '', generation_last.3, routed.4) AS deployment,
    if(end_worker != '', end_worker, generation_last.1) AS worker,
    if(is_valid, validated.5, submitted.4) AS endpoint,
    delivered.2 AS transport,
    multiIf(
        NOT has_ended, 'running',
        ended_by = 'RequestRejected', 'rejected',
        ended_by = 'GenerationFailed' OR end_reason = 'timeout', 'failed',
        end_reason = 'cancelled', 'cancelled',
        end_reason = 'length', 'incomplete',
        'completed'
    ) AS status,
    end_reason AS finish_reason,
    if(end_reason = 'timeout', 'deadline_exceeded', end_code) AS error_code,
    multiIf(settled.1 != 0, settled.2, end_prompt_tokens != 0, end_prompt_tokens, generation.3 != 0, generation.3, validated.6) AS prompt_tokens,
    end_output_tokens AS output_tokens,
    greatest(generation_last.4, end_attempt) AS attempts,
    fromUnixTimestamp64Micro(filled[1], 'UTC') AS received_at,
    fromUnixTimestamp64Micro(boundaries[2], 'UTC') AS started_at,
    fromUnixTimestamp64Micro(boundaries[3], 'UTC') AS validated_at,
    fromUnixTimestamp64Micro(boundaries[4], 'UTC') AS admitted_at,
    fromUnixTimestamp64Micro(boundaries[5], 'UTC') AS routed_at,
    fromUnixTimestamp64Micro(boundaries[6], 'UTC') AS pulled_at,
    fromUnixTimestamp64Micro(boundaries[7], 'UTC') AS generation_started_at,
    fromUnixTimestamp64Micro(boundaries[8], 'UTC') AS first_token_at,
    fromUnixTimestamp64Micro(boundaries[9], 'UTC') AS ended_at,
    fromUnixTimestamp64Micro(nullIf(delivered_us, 0), 'UTC') AS delivered_at,
    stages_ms[1] AS ingress_ms,
    stages_ms[2] AS validate_ms,
    stages_ms[3] AS quota_ms,
    stages_ms[4] AS route_ms,
    stages_ms[5] AS queue_ms,
    stages_ms[6] AS schedule_ms,
    stages_ms[7] AS prefill_ms,
    stages_ms[8] AS decode_ms,
    if(has_ended AND delivered_us != 0, (delivered_us - ended_us) / 1000, NULL) AS deliver_ms,
    (boundaries[8] - filled[1]) / 1000 AS ttft_ms,
    if(has_ended, (if(delivered_us != 0, delivered_us, ended_us) - filled[1]) / 1000, NULL) AS total_ms
FROM
(
    WITH toUnixTimestamp64Micro(at) AS at_us
    SELECT
        tenant,
        request_id,
        argMinIf(
            (at_us, fields.received_at_us, fields.model, fields.endpoint),
            at_us, event_type = 'RequestSubmitted') AS submitted,
        argMinIf(
            (at_us, fields.received_at_us, fields.started_at_us, fields.model, fields.endpoint, prompt_tokens),
            (at_us, offset), event_type = 'RequestValidated') AS validated,
        minIf(at_us, event_type = 'RequestAdmitted') AS admitted_us,
        argMinIf(
            (at_us, fields.model, fields.model_version, fields.deployment, adapter),
            (at_us, offset), event_type = 'RequestRouted') AS routed,
        argMinIf(
            (at_us, fields.pulled_at_us, prompt_tokens),
            offset, event_type = 'GenerationStarted') AS generation,
        argMaxIf(
            (fields.worker, fields.model_version, fields.deployment, fields.attempt),
            (fields.attempt, -offset), event_type = 'GenerationStarted') AS generation_last,
        groupArrayIf(
            (offset, if(event_type = 'RequestAdmitted', 1, fields.attempt)),
            event_type IN ('RequestAdmitted', 'GenerationStarted')) AS beginnings,
        -- Only the token log decides how a request ended: `validated` holds copies.
        groupArrayIf(
            (offset, fields.attempt, at_us, event_type, fields.finish_reason, fields.code, fields.model_version,
             fields.deployment, fields.worker, fields.first_token_at_us, prompt_tokens, fields.output_tokens),
            event_type IN ('RequestRejected', 'GenerationFinished', 'GenerationFailed')
            AND startsWith(topic, 'tokens.')) AS terminals,
        argMinIf((at_us, prompt_tokens), (at_us, offset), event_type = 'QuotaSettled') AS settled,
        argMinIf((at_us, fields.transport), at_us, event_type = 'ResponseDelivered') AS delivered
    FROM headrace.events
    WHERE request_id != ''
    GROUP BY tenant, request_id
);
