"""`python -m ap_agent`: the agent. (The limiter is `python -m ap_agent.commands.limiter_cli`.)"""

from ap_agent.commands.agent_cli import main

if __name__ == "__main__":
    raise SystemExit(main())
