"""Puts the models of the steps before together: the digit that they find likeliest on average."""

import json

import joblib
import numpy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cordee


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    _, test_x, _, test_y = train_test_split(images, digits, random_state=0)
    models = {kind: joblib.load(f"{kind}.joblib") for kind in ("forest", "vectors")}
    chances = numpy.mean([model.predict_proba(test_x) for model in models.values()], axis=0)
    scores = {kind: float(model.score(test_x, test_y)) for kind, model in models.items()}
    scores["together"] = float(numpy.mean(chances.argmax(axis=1) == test_y))
    cordee.log(accuracy=scores["together"])
    with open("score.json", "w") as file:
        json.dump(scores, file)
    print(scores)


if __name__ == "__main__":
    main()
