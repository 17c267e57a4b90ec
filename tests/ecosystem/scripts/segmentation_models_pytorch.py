import segmentation_models_pytorch as smp
import torch

torch.manual_seed(0)
images, masks, results = torch.rand(2, 3, 64, 64), torch.randint(0, 2, (2, 1, 64, 64)), {}
for kind in ("Unet", "FPN", "DeepLabV3Plus"):
    net = getattr(smp, kind)("resnet18", encoder_weights=None, classes=1).eval()
    said = net(images)
    loss = smp.losses.DiceLoss("binary")(said, masks) + smp.losses.FocalLoss("binary")(said, masks)
    loss.backward()
    results.update({kind: said.detach().numpy(), f"{kind}.loss": loss.detach().numpy(),
                    f"{kind}.gradient": net.segmentation_head[0].weight.grad.numpy()})
