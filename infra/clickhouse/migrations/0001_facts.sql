-- The facts: every record of the log, once, by (log_id, topic, partition, offset).
--
-- A record stands in exactly one of the two tables: token_events holds TokensGenerated, events holds all else.
--
-- PARTITION BY the day of ingestion, which the sink sets once for a batch: so a batch is one block in one partition,
-- and an insert is whole or not there, whatever times its events carry.
-- ORDER BY tenant, then request: request ids are UUIDv7, so they sort by time as well.
-- PROJECTION marks: the highest offset of each Kafka partition, kept in the part with the rows that it speaks of.
-- non_replicated_deduplication_window: how many insert_deduplication_tokens are remembered.

CREATE DATABASE IF NOT EXISTS headrace;

CREATE TABLE IF NOT EXISTS headrace.events
(
    `ingested_on` Date CODEC(ZSTD(1)),
    `log_id` LowCardinality(String),
    `topic` LowCardinality(String),
    `partition` Int32 CODEC(T64, ZSTD(1)),
    `offset` Int64 CODEC(DoubleDelta, ZSTD(1)),
    `event_type` LowCardinality(String) COMMENT 'empty: the bytes could not be decoded and stand in payload as they are',
    `tenant` LowCardinality(String),
    `request_id` String CODEC(ZSTD(1)),
    `at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)) COMMENT 'when it happened; of undecodable bytes, when the broker took them',
    `payload` String CODEC(ZSTD(3)) COMMENT 'all fields of the event as JSON; bytes in base64, times in microseconds',
    `decode_error` LowCardinality(String) COMMENT 'why event_type is empty',
    `prompt_tokens` Int64 MATERIALIZED if(event_type = 'RequestValidated', JSONLength(payload, 'prompt_token_ids'), JSONExtractInt(payload, 'prompt_tokens')),
    -- What the views need of the payload, parsed once, when it is inserted.
    `fields` Tuple(
        attempt Int32,
        received_at_us Int64,
        started_at_us Int64,
        pulled_at_us Int64,
        first_token_at_us Int64,
        model LowCardinality(String),
        model_version LowCardinality(String),
        deployment LowCardinality(String),
        worker LowCardinality(String),
        endpoint LowCardinality(String),
        transport LowCardinality(String),
        stage LowCardinality(String),
        finish_reason LowCardinality(String),
        code LowCardinality(String),
        output_tokens Int64
    ) MATERIALIZED JSONExtract(payload, 'Tuple(attempt Int32, received_at_us Int64, started_at_us Int64, pulled_at_us Int64, first_token_at_us Int64, model LowCardinality(String), model_version LowCardinality(String), deployment LowCardinality(String), worker LowCardinality(String), endpoint LowCardinality(String), transport LowCardinality(String), stage LowCardinality(String), finish_reason LowCardinality(String), code LowCardinality(String), output_tokens Int64)'),
    INDEX by_request request_id TYPE bloom_filter(0.001) GRANULARITY 1,
    PROJECTION marks (SELECT log_id, topic, partition, max(offset) GROUP BY log_id, topic, partition)
)
ENGINE = MergeTree
PARTITION BY ingested_on
ORDER BY (tenant, request_id, at)
TTL ingested_on + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS headrace.token_events
(
    `ingested_on` Date CODEC(ZSTD(1)),
    `log_id` LowCardinality(String),
    `topic` LowCardinality(String),
    `partition` Int32 CODEC(T64, ZSTD(1)),
    `offset` Int64 CODEC(DoubleDelta, ZSTD(1)),
    `tenant` LowCardinality(String),
    `request_id` String CODEC(ZSTD(1)),
    `attempt` Int32 CODEC(T64, ZSTD(1)),
    `index` Int64 CODEC(T64, ZSTD(1)) COMMENT 'place of the first token in the output',
    `tokens` Int64 CODEC(T64, ZSTD(1)),
    `token_ids` Array(Int64) CODEC(ZSTD(1)),
    `text_offset_chars` Int64 CODEC(T64, ZSTD(1)),
    `text` String CODEC(ZSTD(1)),
    `at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    INDEX by_request request_id TYPE bloom_filter(0.001) GRANULARITY 1,
    PROJECTION marks (SELECT log_id, topic, partition, max(offset) GROUP BY log_id, topic, partition)
)
ENGINE = MergeTree
PARTITION BY ingested_on
ORDER BY (tenant, request_id, at)
TTL ingested_on + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1;
