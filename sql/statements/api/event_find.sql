-- event_find - the registry row of an id.
--
-- $1::text  scope
-- $2::uuid  key
--
-- Row, or none: ts timestamptz, part_day date, first_seen_at timestamptz,
-- tenant text. Runs as meter_reader with the tenant set: another tenant's
-- row in the shared scope is not seen.
SELECT
    ts,
    part_day,
    first_seen_at,
    tenant
FROM meter.event_registry
WHERE scope = $1::text
    AND key = $2::uuid;
