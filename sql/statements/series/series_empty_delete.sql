-- levels: 5s 1m 1h 1d
-- series_empty_delete - removes buckets above series_5s that have no samples
-- any more.
--
-- $1::text         tenant
-- $2::text         series
-- $3::bigint       version
-- $4::bytea[]      dimension_key
-- $5::timestamptz  the first of the buckets
-- $6::timestamptz  where the last of them ends
--
-- No rows. Only after series_recompute in the same transaction: it has
-- written a count of 0 where nothing is below. No other transaction leaves
-- such a row, so those that are seen are its own. An array, since a join may
-- be planned the wrong way round.
DELETE FROM meter.series_1m
WHERE tenant = $1::text
    AND series = $2::text
    AND version = $3::bigint
    AND dimension_key = ANY ($4::bytea[])
    AND bucket >= $5::timestamptz
    AND bucket < $6::timestamptz
    AND count = 0;
