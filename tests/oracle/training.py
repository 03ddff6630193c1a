"""AdamW training of the oracle's models: torch.optim.AdamW, decay on matrices only, clipping, warm-up and cosine."""
import math

import torch

import dropout
import models


def learning_rate(options, step):
    """Of `step` (from 0): linear warm-up, then half a cosine from peak at warmup_steps to minimum at decay_steps."""
    peak, minimum = options['learning_rate'], options['min_learning_rate']
    warmup, decay = options['warmup_steps'], options['decay_steps']
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step >= decay:
        return minimum
    return minimum + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (decay - warmup))) * (peak - minimum)


class Trainer:
    def __init__(self, config, weights, options, seed=None):
        """weights: name to tensor; trained in place. seed: of the masks of dropout; None: no dropout."""
        self.config, self.weights, self.options, self.seed = config, weights, options, seed
        for tensor in weights.values():
            tensor.requires_grad_(True)
        decayed = [w for w in weights.values() if w.dim() >= 2]
        plain = [w for w in weights.values() if w.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{'params': decayed, 'weight_decay': options['weight_decay']}, {'params': plain, 'weight_decay': 0.0}],
            lr=0.0, betas=(options['beta1'], options['beta2']), eps=options['epsilon'])

    def logits(self, tokens, step):
        masks = models.keep if self.seed is None else dropout.Masks(self.seed, step)
        return models.logits(self.config, self.weights, tokens, masks)

    def gradients(self, tokens, targets, step=0):
        """Loss (a tensor); leaves the gradients in .grad."""
        self.optimizer.zero_grad()
        loss = models.loss_of(self.logits(tokens, step), targets)
        loss.backward()
        return loss.detach()

    def step(self, index, tokens, targets):
        """One update; loss and the gradient's global norm before clipping."""
        loss = self.gradients(tokens, targets, index)
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), self.options['gradient_clip_norm']).item()
        for group in self.optimizer.param_groups:
            group['lr'] = learning_rate(self.options, index)
        self.optimizer.step()
        return loss.item(), norm
