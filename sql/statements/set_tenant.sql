-- set_tenant - whose rows this transaction may read.
--
-- $1::text  tenant
--
-- One row without meaning. SET LOCAL inside: ends with the transaction.
SELECT meter.set_tenant($1::text);
