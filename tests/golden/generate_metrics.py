#!/usr/bin/env python3
"""Metrics of scikit-learn and ranx on small inputs.

The file: see README.md. Inputs are multiples of powers of two, exact in fp32; results are computed in float64.
"""

import sys
import warnings

import numpy as np

import golden

SEED = 8
IGNORED = -100


def whole(name, count, below):
    """Whole numbers in [0, below)."""
    return np.floor(golden.uniform(SEED, name, count).astype(np.float64) * below).astype(int)


def numbers(name, shape, steps):
    """Multiples of 1 / steps in [-2, 2)."""
    u = golden.uniform(SEED, name, int(np.prod(shape))).astype(np.float64)
    return (np.floor(u * 4 * steps) / steps - 2).reshape(shape)


def class_case(metrics, name, count, classes, used):
    """Classes from `used` on never occur."""
    targets = whole(name + " targets", count, used)
    guesses = np.where(whole(name + " right", count, 3) > 0, targets, whole(name + " wrong", count, used))
    targets[whole(name + " ignored", count, 9) == 0] = IGNORED
    counts = targets != IGNORED
    t, g = targets[counts], guesses[counts]
    results = {"accuracy": metrics.accuracy_score(t, g)}
    for what in ("precision", "recall", "f1"):
        score = getattr(metrics, what + "_score")
        for average in ("macro", "micro", "weighted"):
            results[f"{what}_{average}"] = score(t, g, average=average)
        if classes == 2:
            results[what] = score(t, g)
        present = sorted(set(t) | set(g))
        for c, value in zip(present, score(t, g, average=None)):
            results[f"{what}_per_class_{c}"] = value
    matrix = metrics.confusion_matrix(t, g, labels=range(classes))
    for row in range(classes):
        for column in range(classes):
            results[f"confusion_{row}_{column}"] = matrix[row, column]
    return {"name": name, "classes": classes, "guesses": guesses, "targets": targets, "results": results}


def area_case(metrics, name, count, classes, steps):
    targets = whole(name + " targets", count, classes)
    scores = numbers(name + " scores", (count, classes), steps)
    scores[np.arange(count), targets] += 0.5
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = e / e.sum(axis=1, keepdims=True)
    if classes == 2:
        value = metrics.roc_auc_score(targets, scores[:, 1] - scores[:, 0])
    else:
        value = metrics.roc_auc_score(targets, probabilities, multi_class="ovr")
    results = {
        "auroc": value,
        "perplexity": np.exp(metrics.log_loss(targets, probabilities, labels=range(classes))),
    }
    return {"name": name, "classes": classes, "scores": scores, "targets": targets, "results": results}


def number_case(metrics, name, targets, predictions):
    return {
        "name": name,
        "outputs": targets.shape[1],
        "targets": targets,
        "predictions": predictions,
        "results": {
            "mae": metrics.mean_absolute_error(targets, predictions),
            "mse": metrics.mean_squared_error(targets, predictions),
            "rmse": metrics.root_mean_squared_error(targets, predictions),
            "r2": metrics.r2_score(targets, predictions),
        },
    }


def list_case(metrics, ranx, name, count, groups, ties):
    group = whole(name + " groups", count, groups)
    relevance = np.maximum(whole(name + " relevance", count, 7) - 3, 0).astype(float)
    relevance[group == 1] = 0  # a list without anything relevant
    scores = whole(name + " ties", count, 5) / 4.0 if ties else (np.argsort(whole(name, count, 1 << 24)) / 64.0)
    results = {}
    of_group = [np.flatnonzero(group == g) for g in sorted(set(group))]
    if not ties:
        qrels = {f"q{g}": {f"d{i}": int(relevance[i]) for i in np.flatnonzero(group == g)} for g in set(group)}
        run = {f"q{g}": {f"d{i}": float(scores[i]) for i in np.flatnonzero(group == g)} for g in set(group)}
        asked = ["map", "map@3", "mrr", "mrr@2", "ndcg", "ndcg@3", "hit_rate@1", "hit_rate@3",
                 "precision@1", "precision@5"]
        found = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), asked)
        results = {metric.replace("precision@", "precision_at_").replace("@", "_"): value for metric, value in found.items()}
    for k in (None, 2, 4):
        each = [metrics.ndcg_score([relevance[i]], [scores[i]], k=k) if len(i) > 1 else float(relevance[i[0]] > 0)
                for i in of_group]
        results["ndcg" + (f"_{k}" if k else "")] = np.mean(each)
    return {"name": name, "groups": group, "relevance": relevance, "scores": scores, "results": results}


def generate():
    import ranx
    from sklearn import metrics

    warnings.simplefilter("ignore")  # quotients by 0 are 0, as the tests expect
    steady = numbers("steady", (40, 3), 32)
    wrong = numbers("wrong", (40, 3), 32) / 8
    constant = np.full((5, 1), 0.1, dtype=np.float32).astype(np.float64)
    return {
        "classes": [
            class_case(metrics, "two", 50, 2, 2),
            class_case(metrics, "four", 60, 4, 4),
            class_case(metrics, "six, of which one never occurs", 40, 6, 5),
            class_case(metrics, "one of two", 9, 2, 1),
        ],
        "areas": [
            area_case(metrics, "two", 60, 2, 4),
            area_case(metrics, "two without ties", 60, 2, 4096),
            area_case(metrics, "four", 70, 4, 1024),
        ],
        "numbers": [
            number_case(metrics, "three outputs", steady, steady + wrong),
            number_case(metrics, "one output", steady[:, :1], wrong[:, :1]),
            number_case(metrics, "far from 0", steady[:, :1] + 4096, steady[:, :1] + wrong[:, :1] + 4096),
            number_case(metrics, "constant targets", constant, wrong[:5, :1]),
            number_case(metrics, "constant targets that are predicted", constant, constant),
        ],
        "lists": [
            list_case(metrics, ranx, "distinct", 130, 17, False),
            list_case(metrics, ranx, "ties", 90, 9, True),
        ],
    }


def plain(value):
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "metrics.json", lambda: plain(generate()), compare=golden.json_differences(1e-12, 1e-12)))
