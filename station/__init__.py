"""Both ends of a link test that sends: the attachment point's (`ap_end`) and the user's (`user_end`).

Standard library only, because it is shipped with agent, client and service. Only `tools`, used by the service, imports
our rules.

    tools ──> plan <── report            phases, and results
    messages, counting, pacing, mtu, tcp pure parts
    rounds, tcp_round                    one phase at one end
    ap_talk | user_talk                  the conversation of an end, without sockets
    wire, connections                    UDP and TCP sockets
    confine                              drops rights of the attachment point's process
    ap_end | user_end                    entry points
"""
