-- Log probabilities of tokens, and the LoRA adapter that an event names. Rows from before have none.
--
-- logprobs, token_utf8 and top_logprobs have an entry for each token of a request that asked for log probabilities, and
-- are empty for all others. Natural logarithms, as the model gave them.

ALTER TABLE headrace.token_events
    ADD COLUMN IF NOT EXISTS `logprobs` Array(Float64) CODEC(ZSTD(1)) COMMENT 'of each of token_ids; empty if the request asked for none' AFTER `text`,
    ADD COLUMN IF NOT EXISTS `token_utf8` Array(String) CODEC(ZSTD(1)) COMMENT 'what each token adds to the text: bytes, which may be part of a character' AFTER `logprobs`,
    ADD COLUMN IF NOT EXISTS `top_logprobs` Array(Array(Tuple(token_id Int64, utf8 String, logprob Float64))) CODEC(ZSTD(1)) COMMENT 'the likeliest tokens in the place of each, the likeliest first' AFTER `token_utf8`;

ALTER TABLE headrace.events
    ADD COLUMN IF NOT EXISTS `adapter` LowCardinality(String) COMMENT 'the LoRA adapter that the event names; empty: none' AFTER `request_id`;
