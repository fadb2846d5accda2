-- One row for each record that could not be read, by where it stood: however often its letter was written, and whether
-- it was written back (then requeued_at is not NULL). Offsets are those of one log, so letters of another log, of an
-- embedded broker that was started again, stay apart. tenant is _system for topics that no tenant has.

CREATE OR REPLACE VIEW headrace.dead_letters AS
SELECT
    letters_of AS tenant,
    concat(origin.1, '/', toString(origin.2), '/', toString(origin.3)) AS id,
    origin.1 AS origin_topic,
    origin.2 AS origin_partition,
    origin.3 AS origin_offset,
    argMaxIf(letter.1, offset, is_letter) AS reason,
    argMaxIf(letter.2, offset, is_letter) AS message,
    argMaxIf(letter.3, offset, is_letter) AS consumer,
    argMaxIf(letter.4, offset, is_letter) AS schema_fingerprint,
    argMaxIf(letter.5, offset, is_letter) AS schema_id,
    minIf(at, is_letter) AS first_at,
    maxIf(at, is_letter) AS last_at,
    countIf(is_letter) AS times,
    maxOrNullIf(at, NOT is_letter) AS requeued_at,
    argMaxOrNullIf(requeue.1, offset, NOT is_letter) AS requeued_offset,
    argMaxIf(requeue.2, offset, NOT is_letter) AS operator
FROM
(
    SELECT
        replaceOne(topic, 'dead-letters.', '') AS letters_of,
        log_id,
        at,
        offset,
        event_type = 'DeadLettered' AS is_letter,
        JSONExtract(payload, 'Tuple(origin_topic String, origin_partition Int32, origin_offset Int64)') AS origin,
        JSONExtract(payload, 'Tuple(reason String, message String, consumer String, schema_fingerprint String, schema_id Int64)') AS letter,
        JSONExtract(payload, 'Tuple(requeued_offset Int64, operator String)') AS requeue
    FROM headrace.events
    WHERE event_type IN ('DeadLettered', 'DeadLetterRequeued') AND startsWith(topic, 'dead-letters.')
)
GROUP BY letters_of, log_id, origin
HAVING times > 0;
