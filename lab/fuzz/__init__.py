"""Coverage-guided fuzzing of what the agent reads from the network (atheris, which is libFuzzer under Python).

    python -m lab.fuzz bundle --runs 100000 --seed 1 --crashes FOLDER     look for an input that breaks a promise
    python -m lab.fuzz bundle FILE ...                                    try inputs that were found

`targets` has the promises, `mutators` what is done to inputs so that they get deep, `archives` how a tarball is taken
apart and signed anew, `fence` what notices a touch outside of the state directory, `planted` bugs that the fuzzer must
find, `runs` how several processes are run and read.
"""
