"""The collapse monitor: what it logs, when, and what it costs the steps it leaves out."""

import sys
import types
import unittest
import warnings
from unittest import mock

import numpy as np
import zonal
from zonal.callbacks import CollapseMonitor, CollapseWarning

try:
    import torch
except ImportError:
    torch = None

RANDOM = np.random.default_rng(0)
SPREAD = RANDOM.standard_normal((128, 16))
COLLAPSED = np.ones((128, 16)) + 0.001 * SPREAD


class Monitor(unittest.TestCase):
    def test_every_nth_batch(self):
        lines = []
        monitor = CollapseMonitor(every=3, log=lines.append, prefix="train/")
        found = [monitor(SPREAD) is not None for _ in range(7)]
        self.assertEqual(found, [True, False, False, True, False, False, True])
        self.assertEqual([line["train/step"] for line in lines], [0, 3, 6])
        report = zonal.collapse_report(SPREAD)
        self.assertEqual(lines[0]["train/mean_cosine"], report.mean_cosine)
        self.assertEqual(lines[0]["train/effective_rank"], report.effective_rank)
        self.assertEqual(lines[0]["train/log10_p"], report.log10_p)
        self.assertEqual(monitor.report, report)

    def test_batches_between_are_not_touched(self):
        class Untouchable:
            def __getattribute__(self, name):
                raise AssertionError(name)

        monitor = CollapseMonitor(every=2, log=lambda line: None)
        monitor(SPREAD)
        self.assertIsNone(monitor(Untouchable()))

    def test_large_batches_are_sampled_and_views_taken_together(self):
        seen = []
        with mock.patch("zonal.callbacks.collapse_report", side_effect=lambda x: seen.append(x) or 1 / 0):
            for x in (np.zeros((10000, 4)), np.zeros((2048, 4)), np.zeros((3, 10, 4))):
                with self.assertRaises(ZeroDivisionError):
                    CollapseMonitor()(x)
        self.assertEqual([x.shape for x in seen], [(2000, 4), (2048, 4), (30, 4)])

    def test_warns_once_of_collapse(self):
        monitor = CollapseMonitor(every=1, log=lambda line: None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            monitor(SPREAD)
            with self.assertRaisesRegex(CollapseWarning, "step 1: Collapsed to a point"):
                monitor(COLLAPSED)
            monitor(COLLAPSED)
            CollapseMonitor(warn=False, log=lambda line: None)(COLLAPSED)

    def test_batches_that_cannot_be_judged_are_passed_over(self):
        lines = []
        monitor = CollapseMonitor(every=1, log=lines.append)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for few in (SPREAD[:1], SPREAD[:0], np.zeros((1, 1, 16))):
                self.assertIsNone(monitor(few))
        for bad, sentence in ((0, "step 0: row 5 is zero"), (np.nan, "step 0: row 5 holds a number")):
            batch = SPREAD.copy()
            batch[5] = bad
            monitor = CollapseMonitor(every=1, log=lines.append)
            with self.assertWarnsRegex(CollapseWarning, sentence):
                self.assertIsNone(monitor(batch))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertIsNone(monitor(batch))
                self.assertIsNotNone(monitor(SPREAD))
                self.assertIsNone(CollapseMonitor(warn=False)(batch))
            with self.assertWarnsRegex(CollapseWarning, "step 3: Collapsed"):
                monitor(COLLAPSED)
        many = np.tile(SPREAD, (40, 1))
        many[3 * 7] = 0
        with self.assertWarnsRegex(CollapseWarning, r"row 7 is zero.* \(of those looked at, one in 3\)"):
            CollapseMonitor()(many)
        self.assertEqual(len(lines), 4)

    def test_logger(self):
        with self.assertLogs("zonal", "INFO") as caught:
            CollapseMonitor()(SPREAD)
        self.assertRegex(caught.output[0], "step 0, mean_cosine .*, effective_rank 15")

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "every must be at least 1"):
            CollapseMonitor(every=0)
        with self.assertRaisesRegex(ValueError, "2 axes|1 axes"):
            CollapseMonitor()(SPREAD[0])

    def test_lightning_stand_in(self):
        """Lightning's own Callback has every hook; the stand-in has what the monitor relies on."""

        class Module:
            def __init__(self):
                self.lines = []

            def log_dict(self, values):
                self.lines.append(values)

        stand_in = types.ModuleType("lightning.pytorch")
        stand_in.Callback = type("Callback", (), {})
        parent = types.ModuleType("lightning")
        parent.pytorch = stand_in
        module, trainer = Module(), types.SimpleNamespace(global_step=0)
        with mock.patch.dict(sys.modules, {"lightning": parent, "lightning.pytorch": stand_in}):
            callback = CollapseMonitor(every=2).for_lightning("z")
        self.assertIsInstance(callback, stand_in.Callback)
        for trainer.global_step in range(4):
            callback.on_train_batch_end(trainer, module, {"loss": 0, "z": SPREAD}, None, trainer.global_step)
        self.assertEqual([line["step"] for line in module.lines], [0, 2])
        with self.assertRaisesRegex(KeyError, "training_step must return"):
            trainer.global_step = 0
            callback.on_train_batch_end(trainer, module, {"loss": 0}, None, 0)

    def test_lightning_missing(self):
        missing = {name: None for name in ("lightning", "lightning.pytorch", "pytorch_lightning")}
        with (
            mock.patch.dict(sys.modules, missing),
            self.assertRaisesRegex(ImportError, "pip install lightning"),
        ):
            CollapseMonitor().for_lightning()


if torch is not None:
    VIEWS = torch.from_numpy(np.stack([SPREAD, SPREAD + 0.1]))


@unittest.skipIf(torch is None, "this Python has no torch")
class WithTorch(unittest.TestCase):
    def test_attach(self):
        lines = []
        projector = torch.nn.Linear(8, 16)
        handle = CollapseMonitor(every=2, log=lines.append).attach(projector)
        for _ in range(4):
            projector(torch.randn(32, 8))
        projector.eval()(torch.randn(32, 8))
        self.assertEqual([line["step"] for line in lines], [0, 2])
        handle.remove()
        projector.train()(torch.randn(32, 8))
        self.assertEqual(len(lines), 2)

    def test_threshold_and_margin_of_the_loss(self):
        lines = []
        loss = zonal.losses.SphereJEPALoss("mmd-heat", lam=0.05, gain=1.0)
        monitor = CollapseMonitor(every=1, log=lines.append, loss=loss)
        views = torch.from_numpy(np.stack([SPREAD, SPREAD + 0.1]))
        monitor(views)
        self.assertNotIn("margin", lines[0])
        loss(views)
        with self.assertWarnsRegex(CollapseWarning, "times the collapse threshold.*selectivity=10 .band kernels 0.625"):
            monitor(views)
        self.assertAlmostEqual(lines[1]["margin"], 1 / lines[1]["threshold"], delta=1e-9)
        self.assertGreater(lines[1]["threshold"], 1)

    def test_the_weight_is_that_of_the_losss_own_dimension(self):
        """Flat in 512 dimensions, which are watched, and not in the 16 that the loss sees."""
        loss = zonal.losses.SphereJEPALoss("kl-heat", t=0.25, gain=1e5)
        loss(VIEWS)
        self.assertLess(VIEWS.shape[-1], 20)
        features = torch.randn(32, 512, generator=torch.Generator().manual_seed(0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CollapseMonitor(every=1, log=lambda line: None, loss=loss)(features)

    def test_a_kernel_that_is_nearly_flat(self):
        """The issue is t alone: the margin is large at small t too, under some gains and kernels."""

        def warned(method, **options):
            loss = zonal.losses.SphereJEPALoss(method, **options)
            loss(VIEWS)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                CollapseMonitor(every=1, log=lambda line: None, loss=loss)(VIEWS)
            return [str(warning.message) for warning in caught], float(loss.parts.margin)

        for method, t, least in (
            ("kl-heat", "12.8/d", "4/d"),
            ("kl-heat", 0.8, "4/d"),
            ("ksd-heat", 1, "8/d"),
        ):
            found, margin = warned(method, t=t)
            self.assertEqual(len(found), 1, (method, t, found))
            self.assertIn(f'nearly flat in 16 dimensions; give SphereJEPALoss t="{least}" or less', found[0])
            self.assertGreater(margin, 1000)
        for method, options in (
            ("kl-heat", {}),
            ("kl-heat", {"gain": "batch"}),
            ("kl-heat", {"t": "4/d", "selectivity": 1}),
            ("kl-heat", {"t": "12.8/d", "margin": 1.15}),
            ("mmd-heat", {"selectivity": 1}),
            ("mmd-heat", {"t": "20/d", "gain": "batch"}),
            ("mmd-induced", {"gain": 1e6}),
        ):
            self.assertEqual(warned(method, **options)[0], [], (method, options))

    def test_lightning_itself(self):
        try:
            import lightning.pytorch as pl
        except ImportError:
            self.skipTest("this Python has no lightning")
        logged = []

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.projector = torch.nn.Linear(8, 16)
                self.uniformity = zonal.losses.MMD()

            def training_step(self, batch, _):
                z = self.projector(batch[0])
                return {"loss": self.uniformity(z), "projections": z}

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

            def log_dict(self, values):
                logged.append(values)
                super().log_dict(values)

        data = torch.utils.data.TensorDataset(torch.randn(96, 8))
        trainer = pl.Trainer(
            max_steps=6,
            logger=False,
            enable_checkpointing=False,
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[CollapseMonitor(every=2).for_lightning()],
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=32))
        self.assertEqual([line["step"] for line in logged], [2, 4, 6])


if __name__ == "__main__":
    unittest.main()
