import holdfast as hf

shop = hf.Topology("shop")
orders = shop.source(hf.TcpLines(9999), name="orders").preserve("logs/orders").consistent("books")
orders.aggregate("line", n=hf.count(), name="counts").sink(hf.FileSink("out"), name="out")


def test_counts_survive_a_crash(holdfast_run):
    feed = {"orders": [("tea",), ("milk",), ("tea",), ("bread",), ("tea",)] * 4}
    golden = holdfast_run(shop, feed=feed)
    crashed = holdfast_run(shop, feed=feed, kill_at=["step.end@2", "ckpt.epoch.published@2"])
    crashed.same_as(golden, by="line")
