"""An NVFlare job in its simulator: a server with FedAvg, and three sites that train with Motet."""

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from text_model import SITES, TextModel

ROUNDS = 5


def main():
    recipe = FedAvgRecipe(
        name="motet-text",
        model=TextModel(),
        min_clients=SITES,
        num_rounds=ROUNDS,
        train_script="site_training.py",
    )
    run = recipe.execute(SimEnv(num_clients=SITES, workspace_root="nvflare-workspace"))
    print(f"the results are in {run.get_result()}")


if __name__ == "__main__":
    main()
