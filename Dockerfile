# Training on GPUs: docker build -t relational-attention . The wheels of PyTorch bring CUDA; the machine brings its driver.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dual_attention ./dual_attention
COPY dat ./dat
RUN pip install --no-cache-dir -c constraints.txt ".[train,language]"
WORKDIR /runs
ENTRYPOINT ["torchrun"]
