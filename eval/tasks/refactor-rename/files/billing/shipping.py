"""The weight of a parcel."""


def get_total_weight(weights, box=200):
    return sum(weights) + box


def cost(weights):
    return 500 if get_total_weight(weights) <= 2000 else 900
