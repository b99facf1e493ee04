/*
 * metrics.h - every number meterd exports, in one list.
 *
 * METRICS(counter, gauge, histogram): name, help. A drop, refusal, retry or
 * full queue always has one. docs/metrics.md has a row for each; `make
 * lint` compares.
 */

#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include "base/buf.h"

#define METRICS(COUNTER, GAUGE, HISTOGRAM)                                  \
    COUNTER(counter_update_success_total,                                   \
            "Counter rows changed by committed events.")                    \
    COUNTER(duplicate_event_dropped_total,                                  \
            "Events dropped because their id was known with the same "      \
            "content.")                                                     \
    COUNTER(counter_update_conflict_retries,                                \
            "Transactions run again: a deadlock, the same id or a clamped " \
            "row changed by another writer meanwhile.")                     \
    GAUGE(projection_lag_seconds,                                           \
          "Age of the oldest event that waits for its commit.")             \
    COUNTER(edgemeter_events_accepted_total, "Events accepted.")            \
    COUNTER(edgemeter_events_conflict_total,                                \
            "Events refused: known id, other content.")                     \
    COUNTER(edgemeter_events_rejected_total, "Events rejected as invalid.") \
    COUNTER(edgemeter_cardinality_rejected_total,                           \
            "Events rejected: a new counter key past the limit.")           \
    COUNTER(edgemeter_batches_committed_total, "Ingest transactions.")      \
    COUNTER(edgemeter_batch_events_total,                                   \
            "Events in committed ingest transactions.")                     \
    COUNTER(edgemeter_batches_careful_total,                                \
            "Transactions that took the careful path.")                     \
    COUNTER(edgemeter_batches_bisected_total,                               \
            "Batches cut in two after a data error of the database.")       \
    COUNTER(edgemeter_commits_unknown_total,                                \
            "COMMITs whose outcome had to be looked up.")                   \
    COUNTER(edgemeter_commit_microseconds_total,                            \
            "Time spent in ingest transactions.")                           \
    GAUGE(edgemeter_queue_events, "Events waiting for a transaction.")      \
    COUNTER(edgemeter_queue_full_total, "Requests refused: queue full.")    \
    COUNTER(edgemeter_answers_late_total,                                   \
            "Requests answered 503 because no commit came in time.")        \
    COUNTER(edgemeter_database_losses_total, "Lost database connections.")  \
    GAUGE(edgemeter_database_up, "1 while events can be committed.")        \
    GAUGE(edgemeter_database_connections_out,                               \
          "Database connections that are wanted and cannot be had.")        \
    COUNTER(edgemeter_partitions_made_total, "Table partitions made.")      \
    GAUGE(edgemeter_series_cells,                                           \
          "Buckets of series in memory, not flushed yet.")                  \
    GAUGE(edgemeter_series_bytes,                                           \
          "Memory of series that are not flushed yet.")                     \
    GAUGE(edgemeter_series_flush_lag_seconds,                               \
          "How old the newest flushed event may be.")                       \
    COUNTER(edgemeter_series_flushes_total, "Flushes of series.")           \
    COUNTER(edgemeter_series_flush_microseconds_total,                      \
            "Time spent in flushes of series.")                             \
    COUNTER(edgemeter_series_flushed_rows_total,                            \
            "Rows of series written by flushes.")                           \
    COUNTER(edgemeter_series_flush_failures_total,                          \
            "Flushes of series that have to be tried again.")               \
    COUNTER(edgemeter_series_early_flushes_total,                           \
            "Flushes before the end of 5 s: many cells.")                   \
    COUNTER(edgemeter_series_stalls_total,                                  \
            "Times that events waited for a flush.")                        \
    COUNTER(edgemeter_series_aside_total,                                   \
            "Rows that a flush left out: refused.")                         \
    COUNTER(edgemeter_series_expired_total,                                 \
            "Samples older than all that is kept.")                         \
    COUNTER(edgemeter_series_recovered_events_total,                        \
            "Events folded again from the ledger.")                         \
    COUNTER(edgemeter_series_unfit_events_total,                            \
            "Recovered events that the rules reject now.")                  \
    COUNTER(edgemeter_series_orphans_total,                                 \
            "Writers that are gone, flushed from here.")                    \
    COUNTER(edgemeter_rollups_total,                                        \
            "Buckets of series computed from the level below.")             \
    COUNTER(edgemeter_rollup_sweeps_total,                                  \
            "Times that marked buckets were looked for.")                   \
    GAUGE(edgemeter_rollup_marks,                                           \
          "Marks of buckets to compute, up to 10000 of each level.")        \
    GAUGE(edgemeter_rollup_asides,                                          \
          "Marks passed over: their buckets are refused.")                  \
    GAUGE(edgemeter_rollup_lag_seconds,                                     \
          "Age of the oldest mark of a bucket to compute.")                 \
    GAUGE(edgemeter_recorded_ahead_seconds,                                 \
          "How far the order is ahead of the database's clock.")            \
    COUNTER(edgemeter_requests_total, "API requests.")                      \
    COUNTER(edgemeter_requests_unauthorized_total,                          \
            "API requests without a valid token or scope.")                 \
    COUNTER(edgemeter_answers_2xx_total, "API requests answered 2xx.")      \
    COUNTER(edgemeter_answers_4xx_total, "API requests answered 4xx.")      \
    COUNTER(edgemeter_answers_5xx_total, "API requests answered 5xx.")      \
    COUNTER(edgemeter_request_microseconds_total,                           \
            "Time from the whole request to its answer.")                   \
    GAUGE(edgemeter_requests_in_flight, "Requests without an answer yet.")  \
    COUNTER(edgemeter_requests_aborted_total,                               \
            "Requests whose client went away before the answer.")           \
    COUNTER(edgemeter_token_lookups_total,                                  \
            "Tokens looked up in the database, not in the cache.")          \
    GAUGE(edgemeter_connections, "Open connections on the socket.")         \
    COUNTER(edgemeter_connections_refused_total,                            \
            "Connections closed at once: limit of connections.")            \
    GAUGE(edgemeter_muxes, "Connections for many requests at once.")        \
    COUNTER(edgemeter_mux_requests_total, "API requests on muxes.")         \
    GAUGE(edgemeter_mux_requests_in_flight,                                 \
          "Requests on muxes without an answer yet.")                       \
    COUNTER(edgemeter_accept_errors_total,                                  \
            "Connections that could not be accepted: no descriptor.")       \
    COUNTER(edgemeter_sessions_timed_out_total,                             \
            "Connections closed: half a request, or an answer not read.")   \
    GAUGE(edgemeter_unpack_queue, "Compressed bodies being inflated.")      \
    COUNTER(edgemeter_unpacked_bytes_total,                                 \
            "Bytes that compressed bodies had when inflated.")              \
    COUNTER(edgemeter_unpack_refused_total,                                 \
            "Compressed bodies refused: damaged or too large.")             \
    COUNTER(edgemeter_bodies_held_total,                                    \
            "Requests that waited for room for their body.")                \
    COUNTER(edgemeter_peers_refused_total,                                  \
            "Connections refused: foreign user on the socket.")             \
    COUNTER(edgemeter_socket_renewals_total,                                \
            "Times that the socket was gone and was made again.")           \
    COUNTER(edgemeter_protocol_errors_total, "Bad frames on the socket.")   \
    GAUGE(edgemeter_edge_rings, "Rings whose records are being taken.")     \
    COUNTER(edgemeter_edge_records_total,                                   \
            "Ring records committed, replays aside.")                       \
    COUNTER(edgemeter_edge_requests_accepted_total,                         \
            "Captured requests accepted.")                                  \
    COUNTER(edgemeter_edge_requests_duplicate_total,                        \
            "Captured requests whose id was known.")                        \
    COUNTER(edgemeter_edge_requests_conflict_total,                         \
            "Captured requests whose id was known with other content.")     \
    COUNTER(edgemeter_edge_requests_rejected_total,                         \
            "Captured requests that became dead letters.")                  \
    COUNTER(edgemeter_edge_requests_lost_total,                             \
            "Requests that the edge reported as not recorded.")             \
    COUNTER(edgemeter_dead_letters_total, "Records kept as dead letters.")  \
    COUNTER(edgemeter_edge_replays_total,                                   \
            "Ring records that came again and had no effect.")              \
    COUNTER(edgemeter_edge_gaps_total,                                      \
            "Alert: sequence numbers of a ring were missing.")              \
    COUNTER(edgemeter_edge_rewinds_total,                                   \
            "Alert: the database holds less than a ring was told.")         \
    COUNTER(edgemeter_edge_records_missing_total,                           \
            "Alert: records that no ring has any more after a rewind.")     \
    COUNTER(edgemeter_edge_rollbacks_total,                                 \
            "Alert: a ring file is older than what the database holds.")    \
    COUNTER(edgemeter_edge_fenced_total,                                    \
            "Ring connections replaced by a newer one.")                    \
    COUNTER(edgemeter_edge_rings_adopted_total,                             \
            "Orphaned rings drained by this process.")                      \
    GAUGE(edgemeter_edge_orphans, "Rings with records and no owner.")       \
    GAUGE(edgemeter_edge_orphans_removed,                                   \
          "Alert unless 0: records in "                                     \
          "orphaned rings that were removed while they are drained.")       \
    GAUGE(edgemeter_edge_orphan_oldest_seconds,                             \
          "How long the oldest orphaned ring has had no owner.")            \
    COUNTER(edgemeter_poison_records_total,                                 \
            "Records set aside unread after three crashes.")                \
    COUNTER(edgemeter_bucket_operations_total,                              \
            "Writes of the counters API applied.")                          \
    COUNTER(edgemeter_bucket_negative_total,                                \
            "Writes refused: the counter would be negative.")               \
    COUNTER(edgemeter_bucket_overflow_total,                                \
            "Writes refused: the counter would leave 64 bits.")             \
    COUNTER(edgemeter_bucket_key_taken_total,                               \
            "Writes refused: Idempotency-Key of another request.")          \
    COUNTER(edgemeter_bucket_repeated_total,                                \
            "Writes answered as before: known Idempotency-Key.")            \
    COUNTER(edgemeter_bucket_queue_full_total,                              \
            "Requests of the counters API refused: too many are waiting.")  \
    GAUGE(edgemeter_bucket_queue_operations,                                \
          "Writes of the counters API waiting for a transaction.")          \
    COUNTER(edgemeter_bucket_batches_total,                                 \
            "Transactions of the counters API.")                            \
    COUNTER(edgemeter_bucket_batch_operations_total,                        \
            "Writes in committed transactions of the counters API.")        \
    COUNTER(edgemeter_bucket_retries_total,                                 \
            "Transactions of the counters API run again.")                  \
    COUNTER(edgemeter_bucket_unknown_total,                                 \
            "Writes answered 504: not known whether applied.")              \
    COUNTER(edgemeter_bucket_unavailable_total,                             \
            "Writes answered 503: nothing has happened.")                   \
    COUNTER(edgemeter_bucket_expired_total,                                 \
            "Buckets deleted some time after they expired.")                \
    HISTOGRAM(edgemeter_bucket_batched_seconds,                             \
              "Time from a batched write to its answer.")                   \
    HISTOGRAM(edgemeter_bucket_sync_seconds,                                \
              "Time from a synchronous write or set to its answer.")        \
    COUNTER(edgemeter_checkpoints_total, "Checkpoints exported.")           \
    COUNTER(edgemeter_checkpoint_failures_total,                            \
            "Checkpoints that could not be exported.")                      \
    GAUGE(edgemeter_checkpoint_last_seconds,                                \
          "Unix time of the newest checkpoint, 0 when there is none.")      \
    COUNTER(edgemeter_retention_dropped_total,                              \
            "Partitions that retention dropped.")                           \
    COUNTER(edgemeter_retention_failures_total,                             \
            "Retentions that failed or had to leave something.")            \
    GAUGE(edgemeter_retention_waiting,                                      \
          "Tables whose shorter retention waits to be confirmed.")          \
    GAUGE(edgemeter_retention_last_seconds,                                 \
          "Unix time of the last whole retention, 0 when there was none.")  \
    GAUGE(edgemeter_reconcile_last_seconds,                                 \
          "Unix time of the last comparison with the ledger, 0: none.")     \
    GAUGE(edgemeter_reconcile_status,                                       \
          "Exit status of the last comparison with the ledger.")            \
    GAUGE(edgemeter_reconcile_differences,                                  \
          "Differences that the last comparison with the ledger found.")    \
    COUNTER(edgemeter_config_reloads_total, "Rules reloaded.")              \
    COUNTER(edgemeter_config_errors_total, "Reloads refused: bad rules.")   \
    GAUGE(edgemeter_config_version, "Version of the rules in force.")       \
    COUNTER(edgemeter_log_suppressed_total,                                 \
            "Log lines of duplicates, conflicts and bad frames not "        \
            "written: rate limit.")

/* 1 ms to 5 s, and what is longer. */
#define METRICS_BOUNDS 12

struct metrics_histogram {
    int64_t counts[METRICS_BOUNDS + 1]; /* of each bound alone */
    int64_t sum_us;
};

struct metrics {
#define METRICS_FIELD(name, help)     int64_t name;
#define METRICS_HISTOGRAM(name, help) struct metrics_histogram name;
    METRICS(METRICS_FIELD, METRICS_FIELD, METRICS_HISTOGRAM)
#undef METRICS_FIELD
#undef METRICS_HISTOGRAM
};

/* The process has one; only the loop's thread touches it. */
extern struct metrics metrics;

void metrics_observe(struct metrics_histogram *histogram, uint64_t us);

/* Prometheus text, version 0.0.4. */
void metrics_write(struct buf *out);

#endif
