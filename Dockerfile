# Training on GPUs: docker build -t relational-attention . The wheels of PyTorch bring CUDA; the machine brings its driver.
FROM python:3.11.16-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dual_attention ./dual_attention
COPY dat ./dat
RUN pip install --no-cache-dir -c constraints.txt ".[train,language]"
RUN useradd --create-home --uid 1000 dat && install --directory --owner dat /runs
USER dat
WORKDIR /runs
ENTRYPOINT ["torchrun"]
