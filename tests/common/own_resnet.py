"""What stands in for torchvision's ResNet-18 where torchvision is not installed."""


def own_resnet18():
    """A ResNet-18 with torchvision's names of parameters and modules."""
    import torch

    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.downsample = None
            if stride != 1 or before != after:
                self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False),
                                                nn.BatchNorm2d(after))

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            widths = [64, 64, 128, 256, 512]
            for i in range(1, 5):
                stride = 1 if i == 1 else 2
                setattr(self, f"layer{i}", nn.Sequential(Block(widths[i - 1], widths[i], stride),
                                                         Block(widths[i], widths[i], 1)))
            self.fc = nn.Linear(512, 1000)

        def forward(self, x):
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    return ResNet()
