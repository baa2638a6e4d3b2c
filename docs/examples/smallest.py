from monarch.actor import Actor, endpoint, this_host


class Trainer(Actor):
    @endpoint
    def train(self, step: int) -> None: ...


procs = this_host().spawn_procs({"gpus": 8})
trainers = procs.spawn("trainers", Trainer)
fut = trainers.train.call(step=0)
fut.get()
