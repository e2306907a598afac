"""The process with a network and without rights: it asks the service, verifies, stores and hands over to the limiter,
and tells the service what the limiter says of the kernel. In the order of a configuration on its way:

    run            what `scionlab-bw-agent run` puts together: loop, lock, signals, the places it may write to
    loop           what wakes it and when; `background` has its threads, `exchange` says when to talk to the service
    pull           `fetch` asks, over `http`, at the pace of `backoff`; `enrol` fetched the credentials
    check          `bundle` reads a tarball strictly; `hold` keeps back what lacks most links
    hand over      `configuration` leads from an answer to `store` (the disk) and `hand_over` (the limiter)
    report         `limiter_view` reads what the limiter says; `receipt` tells the service
    tests          `sending` has a child for each test that sends: `tied` to the agent, told what to do by
                   `sending_order`; `kept_reports` keeps what it reports, `results` tells the service
    usage          what links used, to the disk and to the service (with the package `ap_agent.usage`)
    metrics        for Prometheus; `health` for monitors and `status`; `problems` names what is wrong
    agent          all of it without a loop, for commands
"""
