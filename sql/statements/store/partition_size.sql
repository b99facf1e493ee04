-- partition_size - bytes that a partition takes, with its indexes.
--
-- $1::text  parent, as in meter.partition_span
-- $2::date  first day
--
-- Row: size bigint, NULL when it is gone. Runs as meter_owner.
SELECT
    pg_catalog.pg_total_relation_size(
        to_regclass(
            format(
                'meter.%I',
                $1::text || '_' || to_char($2::date, 'YYYYMMDD')
            )
        )
    ) AS size;
