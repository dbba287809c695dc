# Three silos, a shuffler and an analyzer as programs of their own, on this machine: a trial.
# pip install 'apes-fl[flower]'; sh examples/federation_of_three.sh

# Keys, certificates, policy, terms, data and start scripts.
apes federation init trial --silos 3 --users 300 --rounds 20

# Start everything, train, stop everything; after a crash, the same command goes on.
apes federation up trial

# What each silo's vault has spent of what its owner granted.
apes federation spent trial/devices/0001
