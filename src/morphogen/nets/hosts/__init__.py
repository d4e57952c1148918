"""Host networks: layout of the parameters, masks of an instance, blocks and head."""
