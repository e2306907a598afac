"""The administrators' cockpit: states and problems, cost of the traffic, changes of defaults. Staff only."""
