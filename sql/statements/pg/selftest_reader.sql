-- selftest_reader - relations that would let the current role read past
-- row-level security.
--
-- Rows, at most 5, none when all is well: relation text, reason text.
WITH relation AS (
    SELECT
        class.oid,
        class.oid::regclass::text AS name,
        class.relkind,
        class.relispartition,
        class.relrowsecurity AND class.relforcerowsecurity AS guarded,
        pg_has_role(current_user, class.relowner, 'MEMBER') AS owned,
        has_table_privilege(
            current_user,
            class.oid,
            'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'
        )
        OR has_any_column_privilege(
            current_user,
            class.oid,
            'SELECT, INSERT, UPDATE, REFERENCES'
        ) AS granted,
        COALESCE(class.reloptions, '{}') && ARRAY[
            'security_invoker=true',
            'security_invoker=on',
            'security_invoker=1'
        ] AS invoker,
        EXISTS (
            SELECT
            FROM pg_catalog.pg_attribute AS attribute
            WHERE attribute.attrelid = class.oid
                AND attribute.attname IN ('tenant', 'tenant_id')
                AND NOT attribute.attisdropped
        ) AS of_tenant
    FROM pg_catalog.pg_class AS class
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p', 'v', 'm', 'f')
),
judged AS (
    SELECT
        name,
        CASE
            WHEN owned
                THEN 'is owned by it'
            WHEN relispartition AND granted
                THEN 'is a partition that it may use directly'
            WHEN relkind IN ('r', 'p', 'f') AND of_tenant AND NOT guarded
                THEN 'has row-level security not enabled and forced'
            WHEN relkind = 'v' AND granted AND NOT invoker
                THEN 'is a view without security_invoker'
            WHEN relkind = 'm' AND granted
                THEN 'is a materialized view that it may use'
        END AS reason
    FROM relation
)
SELECT
    name AS relation,
    reason
FROM judged
WHERE reason IS NOT NULL
ORDER BY name
LIMIT 5;
