"""The administrators' cockpit: states and problems, cost of the traffic, bulk changes. Staff only."""
