-- set_tenant - whose rows this transaction may read.
--
-- $1::text  tenant
--
-- One row without meaning. Ends with the transaction, as SET LOCAL does.
SELECT meter.set_tenant($1::text);
