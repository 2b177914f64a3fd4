"""ResNets with torchvision's names of parameters and modules, where torchvision is not installed."""


def own_resnet(depth, width=1.0):
    """A ResNet-18, -34 or -50 with ImageNet's stem; with another width, as zonal's --width makes it."""
    import torch

    nn = torch.nn
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]
    expansion = 4 if depth == 50 else 1

    class Block(nn.Module):
        def __init__(self, before, inner, stride):
            super().__init__()
            after = expansion * inner
            if expansion == 1:
                plan = [(before, inner, 3, stride), (inner, after, 3, 1)]
            else:
                plan = [(before, inner, 1, 1), (inner, inner, 3, stride), (inner, after, 1, 1)]
            self.count = len(plan)
            for i, (a, b, kernel, step) in enumerate(plan, 1):
                setattr(self, f"conv{i}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
                setattr(self, f"bn{i}", nn.BatchNorm2d(b))
            self.downsample = None
            if stride != 1 or before != after:
                self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False),
                                                nn.BatchNorm2d(after))

        def forward(self, x):
            y = x
            for i in range(1, self.count + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                if i < self.count:
                    y = torch.relu(y)
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            inner = [max(8, 8 * int(64 * 2**i * width / 8 + 0.5)) for i in range(4)]
            self.conv1 = nn.Conv2d(3, inner[0], 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(inner[0])
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            before = inner[0]
            for i in range(4):
                layer = []
                for k in range(blocks[i]):
                    layer.append(Block(before, inner[i], 2 if i > 0 and k == 0 else 1))
                    before = expansion * inner[i]
                setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
            self.fc = nn.Linear(before, 1000)

        def forward(self, x):
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    return ResNet()


def own_resnet18():
    return own_resnet(18)
