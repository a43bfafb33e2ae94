"""Runs at each site of an NVFlare job: Motet trains the model that NVFlare's server sends, on the texts of this site."""

import nvflare.client as flare
from text_model import TextModel


def main():
    flare.init()
    site = flare.get_site_name()
    model = TextModel(int(site.rpartition("-")[2]) - 1)  # NVFlare's simulator calls the sites site-1, site-2, …
    while flare.is_running():
        received = flare.receive()
        if received is None:  # the job has ended
            break
        model.load_state_dict(received.params)
        scores = model.train_locally(received.current_round)
        print(f"{site}, round {received.current_round}: accuracy {scores['accuracy']:.3f} after training", flush=True)
        meta = {"NUM_STEPS_CURRENT_ROUND": model.examples}  # the weight of this site in the server's average
        flare.send(flare.FLModel(params=model.state_dict(), metrics={"accuracy": scores["accuracy"]}, meta=meta))


if __name__ == "__main__":
    main()
