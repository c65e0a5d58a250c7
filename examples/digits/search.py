"""Searches the settings of one kind of model by cross-validation, on the ranks of the run, and keeps the best model."""

import sys

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

import cordee

KINDS = {
    "forest": (RandomForestClassifier(random_state=0), {"n_estimators": [10, 30], "max_features": ["sqrt", 0.3]}),
    "vectors": (SVC(probability=True, random_state=0), {"C": [1.0, 10.0], "gamma": ["scale", 0.001]}),
}


def main() -> None:
    kind = sys.argv[1]
    model, settings = KINDS[kind]
    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, digits, random_state=0)
    with cordee.joblib_backend():
        search = GridSearchCV(model, settings, cv=3).fit(train_x, train_y)
    accuracy = search.score(test_x, test_y)
    cordee.log(accuracy=accuracy)
    joblib.dump(search.best_estimator_, f"{kind}.joblib")
    print(f"{kind}: {search.best_params_}, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
