"""GPT-2 and Llama in plain PyTorch, written from the published formulas, over a dictionary of tensors under Hugging Face
names. No framework's model code is used, so that an error is not shared. Letters: B batch, T tokens, C width, H heads,
D head size, V vocabulary.
GPT-2: Radford et al. 2019; GELU with tanh: Hendrycks and Gimpel 1606.08415. Llama: Touvron et al. 2302.13971; RoPE: Su et al.
2104.09864 (halves rotated, as Hugging Face stores the weights); RMSNorm 1910.07467; SwiGLU 2002.05202; grouped heads 2305.13245."""
import math

import torch
import torch.nn.functional as functional


def keep(x, site, p):
    """No dropout."""
    return x


def attention(q, k, v, dropped=lambda x: x):
    """Causal softmax(q k^T / sqrt(D)) v; q [B,H,T,D]; k, v [B,KV,T,D], query head h reads head h / (H/KV). `dropped` of the
    probabilities [B,H,T,T]."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return dropped(torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)) @ v


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(config, weights, tokens, dropout=keep):
    """Logits [B,T,V] of tokens [B,T]. Weights of Conv1D are [in,out]; biases may be absent. dropout(x, site, p): dropout.py."""
    def linear(name, x):
        y = x @ weights[name + '.weight']
        bias = weights.get(name + '.bias')
        return y if bias is None else y + bias

    def norm(name, x):
        return functional.layer_norm(x, x.shape[-1:], weights[name + '.weight'], weights.get(name + '.bias'),
                                     config['layer_norm_epsilon'])

    heads = config['n_head']
    residual = config.get('resid_pdrop', 0.0)
    x = dropout(weights['wte.weight'][tokens] + weights['wpe.weight'][:tokens.shape[1]], 'drop', config.get('embd_pdrop', 0.0))
    for layer in range(config['n_layer']):
        at = f'h.{layer}.'

        def dropped(x, site=at + 'attn'):
            return dropout(x, site, config.get('attn_pdrop', 0.0))
        qkv = linear(at + 'attn.c_attn', norm(at + 'ln_1', x))
        q, k, v = (split_heads(part, heads) for part in qkv.chunk(3, dim=-1))
        y = linear(at + 'attn.c_proj', join_heads(attention(q, k, v, dropped)))
        x = x + dropout(y, at + 'attn.add', residual)
        y = linear(at + 'mlp.c_proj', gelu(linear(at + 'mlp.c_fc', norm(at + 'ln_2', x))))
        x = x + dropout(y, at + 'mlp.add', residual)
    head = weights.get('lm_head.weight', weights['wte.weight'])
    return norm('ln_f', x) @ head.T


def rotate(x, theta):
    """RoPE on x [B,heads,T,D]: pairs (i, i + D/2) turned by t * theta^(-2i/D)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequency
    first, second = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def llama(config, weights, tokens, dropout=keep):
    """Logits [B,T,V] of tokens [B,T]. Weights are [out,in]. Llama has no dropout."""
    def linear(name, x):
        return x @ weights[name + '.weight'].T

    def norm(name, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config['rms_norm_eps']) * weights[name + '.weight']

    heads, kv_heads, theta = config['num_attention_heads'], config['num_key_value_heads'], config['rope_theta']
    x = weights['model.embed_tokens.weight'][tokens]
    for layer in range(config['num_hidden_layers']):
        at = f'model.layers.{layer}.'
        a = norm(at + 'input_layernorm', x)
        q = rotate(split_heads(linear(at + 'self_attn.q_proj', a), heads), theta)
        k = rotate(split_heads(linear(at + 'self_attn.k_proj', a), kv_heads), theta)
        v = split_heads(linear(at + 'self_attn.v_proj', a), kv_heads)
        x = x + linear(at + 'self_attn.o_proj', join_heads(attention(q, k, v)))
        a = norm(at + 'post_attention_layernorm', x)
        x = x + linear(at + 'mlp.down_proj', functional.silu(linear(at + 'mlp.gate_proj', a)) * linear(at + 'mlp.up_proj', a))
    head = weights['lm_head.weight' if not config['tie_word_embeddings'] else 'model.embed_tokens.weight']
    return norm('model.norm', x) @ head.T


def logits(config, weights, tokens, dropout=keep):
    return {'gpt2': gpt2, 'llama': llama}[config['model_type']](config, weights, tokens, dropout)


def loss_of(values, targets):
    """Mean over the targets >= 0."""
    return functional.cross_entropy(values.reshape(-1, values.shape[-1]), targets.reshape(-1), ignore_index=-1)


def gpt2_shapes(config):
    """Names and shapes of all parameters."""
    width, inner, bias = config['n_embd'], config['n_inner'], config['bias']
    shapes = {'wte.weight': (config['vocab_size'], width), 'wpe.weight': (config['n_positions'], width)}

    def add(name, *shape):
        shapes[name + '.weight'] = shape
        if bias:
            shapes[name + '.bias'] = shape[-1:]

    for layer in range(config['n_layer']):
        at = f'h.{layer}.'
        add(at + 'ln_1', width)
        add(at + 'attn.c_attn', width, 3 * width)
        add(at + 'attn.c_proj', width, width)
        add(at + 'ln_2', width)
        add(at + 'mlp.c_fc', width, inner)
        add(at + 'mlp.c_proj', inner, width)
    add('ln_f', width)
    return shapes


def llama_shapes(config):
    width, inner = config['hidden_size'], config['intermediate_size']
    kv_width = config['num_key_value_heads'] * (width // config['num_attention_heads'])
    shapes = {'model.embed_tokens.weight': (config['vocab_size'], width), 'model.norm.weight': (width,)}
    if not config['tie_word_embeddings']:
        shapes['lm_head.weight'] = (config['vocab_size'], width)
    for layer in range(config['num_hidden_layers']):
        at = f'model.layers.{layer}.'
        shapes.update({
            at + 'input_layernorm.weight': (width,), at + 'post_attention_layernorm.weight': (width,),
            at + 'self_attn.q_proj.weight': (width, width), at + 'self_attn.k_proj.weight': (kv_width, width),
            at + 'self_attn.v_proj.weight': (kv_width, width), at + 'self_attn.o_proj.weight': (width, width),
            at + 'mlp.gate_proj.weight': (inner, width), at + 'mlp.up_proj.weight': (inner, width),
            at + 'mlp.down_proj.weight': (width, inner)})
    return shapes


def shapes(config):
    return {'gpt2': gpt2_shapes, 'llama': llama_shapes}[config['model_type']](config)
