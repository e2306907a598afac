"""The administrators' cockpit: who is in trouble, what the traffic costs, many limits changed at once. Staff only."""
