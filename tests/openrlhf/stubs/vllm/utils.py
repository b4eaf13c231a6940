from uuid import uuid4


def random_uuid():
    return uuid4().hex
