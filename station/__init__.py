"""Both ends of a test of a Link that sends: the attachment point's (`ap_end`) and the user's (`user_end`).

Needs the standard library and nothing else, because it is shipped with the agent, with the users' client and with the
service. Only `tools`, which the service uses, imports a rule of ours.

    tools ──> plan <── report            what is done, and what came of it
    messages, counting, pacing, mtu, tcp pure parts
    rounds, tcp_round                    one phase at one end
    ap_talk | user_talk                  the conversation of an end, over time, without a socket
    wire, connections                    sockets of UDP, of TCP
    confine                              what the attachment point's child gives up
    ap_end | user_end                    the doors
"""
