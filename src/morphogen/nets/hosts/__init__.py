"""Host networks."""
