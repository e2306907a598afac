"""The agent: the process with a network and without rights, between the service and the limiter. Its modules:

run            composes the daemon: loop, lock, signals, writable places
loop           wake-ups and steps; `background` has its threads, `exchange` schedules requests
pull           `fetch` polls, over `http`, at the pace of `backoff`; `enrol` fetched the credentials
check          `bundle` parses a tarball strictly; `hold` holds back what lacks most links
hand over      `configuration` leads from a response to `store` (the disk) and `hand_over` (the limiter)
report         `limiter_view` reads the limiter's state; `receipt` reports it to the service
tests          `sending` runs a child for each test that sends: `tied` to the agent, with a `sending_order`;
               `kept_reports` stores its report, `results` uploads it
usage          traffic of links, to the disk and to the service (with the package `ap_agent.usage`)
metrics        for Prometheus; `health` for monitors and `status`; `problems` names what is wrong
agent          all of it without a loop, for commands
"""
