-- counter_audit_insert - logs what a transaction did to audited counter rows.
--
-- $1::text[]       tenant
-- $2::text[]       counter_name
-- $3::bytea[]      dimension_key
-- $4::bigint[]     step_add, NULL: decided one by one
-- $5::bigint[]     step_floor, NULL: no clamp
-- $6::bigint[]     seq_first
-- $7::bigint[]     seq_last
-- $8::uuid         writer
-- $9::timestamptz  recorded_at: the clock
--
-- No rows; as many inserted as given. Only behind counter_upsert or
-- counter_write in the same transaction: the value is what they left, and
-- nobody else can change it or draw an id for it until the commit. LATERAL:
-- one probe of the primary key for each.
INSERT INTO meter.counter_audit (
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    step_add,
    step_floor,
    value,
    writer,
    seq_first,
    seq_last,
    recorded_at
)
SELECT
    done.tenant,
    done.counter_name,
    done.dimension_key,
    behind.dimensions,
    done.step_add,
    done.step_floor,
    behind.value,
    $8::uuid,
    done.seq_first,
    done.seq_last,
    $9::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[],
    $4::bigint[],
    $5::bigint[],
    $6::bigint[],
    $7::bigint[]
) AS done (
    tenant,
    counter_name,
    dimension_key,
    step_add,
    step_floor,
    seq_first,
    seq_last
)
CROSS JOIN LATERAL (
    SELECT
        counter.dimensions,
        counter.value
    FROM meter.counter
    WHERE counter.tenant = done.tenant
        AND counter.counter_name = done.counter_name
        AND counter.dimension_key = done.dimension_key
    LIMIT 1
) AS behind;
