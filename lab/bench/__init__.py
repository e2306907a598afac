"""Performance programs: what the agent's engine costs and delivers, beside its peers in the same run.

    ./dev bench                    all suites
    ./dev bench packet install     some of them
    ./dev bench QUICK=1            smaller sizes, fewer repetitions: does everything still run?
    ./dev bench --publish          and write its targets and plots into docs/performance.md

Nothing here is a test: a machine under load gives other times. Variants that are compared run in turns within one
step, so that what disturbs one disturbs all; published figures are medians, and every raw sample is in a CSV file.
"""
